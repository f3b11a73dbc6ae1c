"""Pure functions on text: encoding, lines, edit, patch, diff, merge, elision, front matter."""
