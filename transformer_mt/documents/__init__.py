"""Documents, whose text is translated while all else in them stays: HTML, XML, subtitles, catalogues of gettext."""
