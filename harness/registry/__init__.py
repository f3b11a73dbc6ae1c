"""Many processes change one registry while another program rewrites it."""
