"""Documents with tags: HTML and XML, whose text is translated and whose tags stay."""
