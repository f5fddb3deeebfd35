"""Makes the demo corpus: English sentences and their German translations, from a small grammar.

The corpus is synthetic and says nothing about the world. It contains what makes German more than a word-by-word copy of
English: the verb in second or last place, separable verbs, gender, case, adjective endings, number words. The same
English sentence always has the same German translation, so a small model can learn it nearly perfectly.

Read the modules in this order: entries, nouns, verbs, words; forms, phrases, clauses; dice, actions, statements,
sentences; corpus.
"""
