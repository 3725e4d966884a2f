"""Many runs of one problem in one compiled program."""
