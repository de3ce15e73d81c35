"""From tables to arrays: Arrow, roles of columns, encodings, episodes and actions."""
