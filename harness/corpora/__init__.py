"""Files and secrets to test the risk check and the validators on."""
