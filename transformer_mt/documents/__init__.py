"""Documents, whose text is translated while all else stays: HTML, XML, Markdown, plain text, subtitles, gettext."""
