"""The hooks of coding clients: what they tell of each tool call, and where they are configured."""
