"""Tables that others have printed, computed again, each with the row of what a sceptic would do."""
