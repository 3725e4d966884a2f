"""The command line's parts: read a configuration, build what it names, run it, show and write the outcome."""
