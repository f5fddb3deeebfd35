"""Documents, whose text is translated while all else in them stays: HTML, XML, Markdown, subtitles, gettext."""
