"""The benchmark of the field: every method, tuned with one budget, judged by the exact reference on
every axis."""
