"""What was found out about a plan, shown: words for a terminal, a page for a browser. Draws plain data and knows no engine."""
