"""The English names of languages."""

NAMES = dict(
    pair.split(":")
    for pair in """af:Afrikaans am:Amharic ar:Arabic az:Azerbaijani be:Belarusian bg:Bulgarian bn:Bengali br:Breton
    bs:Bosnian ca:Catalan cs:Czech cy:Welsh da:Danish de:German el:Greek en:English eo:Esperanto es:Spanish et:Estonian
    eu:Basque fa:Persian fi:Finnish fo:Faroese fr:French fy:Frisian ga:Irish gd:Gaelic gl:Galician gu:Gujarati ha:Hausa
    he:Hebrew hi:Hindi hr:Croatian hu:Hungarian hy:Armenian id:Indonesian ig:Igbo is:Icelandic it:Italian ja:Japanese
    ka:Georgian kk:Kazakh km:Khmer kn:Kannada ko:Korean ky:Kyrgyz la:Latin lb:Luxembourgish lo:Lao lt:Lithuanian
    lv:Latvian mg:Malagasy mk:Macedonian ml:Malayalam mn:Mongolian mr:Marathi ms:Malay mt:Maltese my:Burmese
    nb:Norwegian ne:Nepali nl:Dutch nn:Nynorsk no:Norwegian oc:Occitan or:Odia pa:Punjabi pl:Polish ps:Pashto
    pt:Portuguese ro:Romanian ru:Russian rw:Kinyarwanda sd:Sindhi se:Sami si:Sinhala sk:Slovak sl:Slovenian so:Somali
    sq:Albanian sr:Serbian sv:Swedish sw:Swahili ta:Tamil te:Telugu tg:Tajik th:Thai ti:Tigrinya tk:Turkmen tl:Tagalog
    tr:Turkish tt:Tatar ug:Uyghur uk:Ukrainian ur:Urdu uz:Uzbek vi:Vietnamese xh:Xhosa yi:Yiddish yo:Yoruba
    zh:Chinese zu:Zulu""".split()
)
"""By the short codes of `short_code`."""
