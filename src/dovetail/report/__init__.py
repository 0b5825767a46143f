"""Reports of plans and models: text for a terminal, a page for a browser. Plain data in, no engine."""
