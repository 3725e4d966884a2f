"""Where agents are, and how the processes of a run find each other."""
