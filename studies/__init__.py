"""Studies beside the library: what is claimed of it, measured. None of this is in the wheel."""
