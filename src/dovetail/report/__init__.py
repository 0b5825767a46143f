"""Reports of plans and models as text for a terminal or pages for a browser, from plain data without the engine."""
