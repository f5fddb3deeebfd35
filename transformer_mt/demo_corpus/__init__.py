"""The demo corpus: English sentences and their German translations, made by a small grammar.

The corpus is synthetic and says nothing about the world. It holds what makes German more than a word by word
copy of English: verb second and verb last, separable verbs, gender, case, adjective endings, number words.
The same English sentence always has the same German, so that a small model can learn it nearly perfectly.

To be read in this order: entries, nouns, verbs, words; forms, phrases, clauses; dice, actions, statements,
sentences; corpus.
"""
