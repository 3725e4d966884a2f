"""Every use beside what a sceptic would do instead: programs that print one table each."""
