"""The table of names of other libraries: which are here, which have a hint, which are declined."""
