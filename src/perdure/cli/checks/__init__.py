"""What `perdure doctor` looks at, one file per kind of trouble. Each check yields findings and never raises."""
