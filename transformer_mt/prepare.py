"""The stage `prepare`: reads sentence pairs, makes a tokenizer, and writes token ids."""

import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from transformer_mt.base.cores import num_cores
from transformer_mt.base.errors import CorpusError, DirectoryError, EvaluationError
from transformer_mt.base.languages import KEEP, UNK
from transformer_mt.base.wording import counted, cut, warn
from transformer_mt.corpora.corpus import BadPair, Corpus
from transformer_mt.corpora.filters import KEPT, REASONS, TextFilters
from transformer_mt.corpora.opening import sample_of
from transformer_mt.evaluation.metrics import check_tokeniser, check_words, tokenised_warning
from transformer_mt.marian import as_model_dir
from transformer_mt.preparing import fill_data_dir
from transformer_mt.preparing.measured_text import TextMeasures, measure, table
from transformer_mt.preparing.prepared import ORIGIN, SUMMARY, Prepared, TokenizerOrigin, is_training, read_prepared
from transformer_mt.preparing.shards import writing
from transformer_mt.preparing.text_warnings import corpus_warnings, text_warnings
from transformer_mt.preparing.training_shards import make_shards
from transformer_mt.settings.corpus_settings import PairedText
from transformer_mt.settings.experiment import Config
from transformer_mt.settings.reading import differences, load_config
from transformer_mt.settings.section import fingerprint
from transformer_mt.settings.text_settings import TokenizerConfig
from transformer_mt.storage.claims import Claims
from transformer_mt.terminal import cli
from transformer_mt.text import existing_tokenizer
from transformer_mt.text.protection import check_kept
from transformer_mt.text.tokenizer import Tokenizer, clean, holds_tokenizer, taken

MOST_PAIRS = 1_000_000  # the default; they take about 20 s, or 30 s with a tokenizer


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status; raises UserError."""
    arguments = _parser().parse_intermixed_args(argv)
    config = load_config(arguments.config, arguments.overrides)
    if arguments.look is not None:
        look(config, arguments.look)
        return 0
    warn(config.training.schedule_warning())
    try:
        with cli.sigterm_raised():
            prepare(config, arguments.workers)
    except KeyboardInterrupt:
        command = cli.command("prepare", arguments.config, *arguments.overrides)
        print(f"Finished parts are kept. To resume: {command}", file=sys.stderr)
        raise
    return 0


def _parser() -> ArgumentParser:
    parser = cli.parser(
        "prepare",
        "Reads the corpus of a configuration. Trains a tokenizer, or takes the existing one named by tokenizer.from,\n"
        "or adds pieces to the one named by tokenizer.extend_from.\n"
        "Writes the tokenizer, token ids, and the text of validation and test sets to data_dir.",
        "python -m transformer_mt.prepare configs/demo_en_de.yaml tokenizer.vocab_size=1000",
    )
    parser.add_argument("config", metavar="CONFIG", action=cli.BeforeSettings, help="YAML file, as those in configs/")
    cli.add_settings(parser, "change settings of the file")
    about = (
        "number of processes that encode the training text; it does not change the result (default: %(default)s, "
        "one for each processor)"
    )
    parser.add_argument("--workers", metavar="N", type=cli.positive, default=num_cores(), help=about)
    about = (
        "write nothing; show what the first N pairs of each training corpus are like, and with examples what the "
        f"filters would remove (default: {MOST_PAIRS:,})"
    )
    parser.add_argument("--look", metavar="N", nargs="?", type=cli.positive, const=MOST_PAIRS, help=about)
    return parser


def look(config: Config, most: int) -> None:
    """Print what the first `most` pairs of each corpus are like, and which the filters leave out. Raises UserError."""
    tokenizer, opened = _tokenizer_to_look(config), fill_data_dir.open_splits(config.corpus)
    measures = measure(config.corpus, config.filters, opened, tokenizer, most)
    print(table(measures))
    if any(count.total() == most for count in measures.counts.values()):
        print(f"note: this reads only the first {most:,} pairs of each corpus; `--look N` reads N")
    warn(*corpus_warnings(config.corpus, opened), *text_warnings(measures))
    _print_examples(measures)


def _tokenizer_to_look(config: Config) -> Tokenizer | None:
    """Return the tokenizer of the configuration or of its data_dir. If there is none, print a note."""
    if config.tokenizer.from_ is not None:
        return existing_tokenizer.open_existing(as_model_dir(Path(config.tokenizer.from_)))
    if holds_tokenizer(Path(config.data_dir)):
        return Tokenizer.load(Path(config.data_dir))
    print(
        "note: this does not check lengths in subword pieces (corpus.max_length, corpus.max_ratio), because there is "
        "no tokenizer yet; you can name one with tokenizer.from=PATH",
        file=sys.stderr,
    )
    return None


def _print_examples(measures: TextMeasures) -> None:
    for reason, words in {KEPT: "kept, each source above its target", **REASONS}.items():
        if reason in measures.examples:
            print(f"\n{words}:")
        for place, pair in measures.examples.get(reason, []):
            print(f"  {place}")
            for text in [pair.fault] if isinstance(pair, BadPair) else map(cut, pair):
                print(f"      {text or '(blank)'}")


def prepare(config: Config, num_workers: int = 1) -> None:
    """Fill config.data_dir, unless this is done already. Raises UserError, also if it was filled from other text."""
    for split in config.corpus.held_out.values():
        # `train` and `evaluate` need this tokeniser: an error now is better than one hours later.
        check_tokeniser(config.corpus.languages_of(split)[1])
    directory, splits = Path(config.data_dir), fill_data_dir.splits_of(config.corpus)
    if (directory / SUMMARY).exists() and _is_done(config, fill_data_dir.split_digests(config.corpus)):
        return
    pairs = fill_data_dir.open_splits(config.corpus)
    digests = {name: corpus.digest() for name, corpus in pairs.items()}
    warn(*corpus_warnings(config.corpus, pairs), *_text_warnings(pairs))
    existing = _existing_tokenizer(config.tokenizer.from_, config) if config.tokenizer.from_ else None
    held_out = fill_data_dir.held_out_of(pairs)
    texts = TextFilters.of(config.filters, config.corpus, held_out)
    sections = config.corpus, config.tokenizer, config.model.max_positions
    with ExitStack() as stack:
        with fill_data_dir.hold_data_dir(directory, splits.values()):
            if _is_done(config, digests):  # another process may have just finished it
                return
            claims = _begun(stack, config, digests, existing)
            with claims.alone(claims.directory / "begin"):
                if (prepared := read_prepared(directory)) is not None:
                    _begin_to_add(prepared, config, digests)
                tokenizer = _tokenizer(config, digests, pairs, texts, existing)
                plan = fill_data_dir.Plan(directory, *sections, digests, pairs, held_out, texts, tokenizer)
                maker, corpora = stack.enter_context(fill_data_dir.shard_maker(plan, claims, num_workers))
                if not claims.others():
                    maker.make_room(corpora)
        try:
            records = make_shards(maker, corpora)
            with claims.alone(claims.directory / "end"), fill_data_dir.hold_data_dir(directory, splits.values()):
                if not _is_done(config, digests):
                    fill_data_dir.fill_data_dir(plan, maker, records)
        except CorpusError:
            # Another process may have finished, and then removed what this one still wrote.
            with fill_data_dir.hold_data_dir(directory, splits.values()):
                if not _is_done(config, digests):
                    raise


def _begun(stack: ExitStack, config: Config, digests: dict[str, str], existing: Tokenizer | None) -> Claims:
    """Return the claims of this process. Raises DirectoryError if another process prepares other data here."""
    directory, tokenizer = Path(config.data_dir), existing.digest if existing else ""
    sections = config.corpus, config.filters, config.tokenizer, config.training.modifiers
    digest = fingerprint(*sections, tokenizer, *digests.values())
    claims = Claims(directory / "train", f"{digest} {config.model.max_positions}")
    with writing(claims.directory):
        claims.directory.mkdir(exist_ok=True)
    stack.enter_context(claims)
    if claims.rivals():
        raise DirectoryError(f"{directory}: another process prepares other data here; wait, or choose another data_dir")
    return claims


def _text_warnings(opened: dict[str, Corpus]) -> Iterator[str | None]:
    """Warnings about targets to score with that are not plain text: `evaluate` would give them only after training."""
    for name, corpus in opened.items():
        targets = [] if is_training(name) else [target for _, target in corpus.pairs()]
        try:
            check_words([targets], [f"targets of {name}"])
        except EvaluationError as error:
            yield str(error)
        yield tokenised_warning(f"targets of {name}", targets)


def _is_done(config: Config, digests: dict[str, str]) -> bool:
    """Whether the directory is prepared already; if so, prints it. False if the configuration adds corpora.

    Raises CorpusError with the differences if it was prepared with another configuration or from other text.
    """
    directory = Path(config.data_dir)
    if not (directory / SUMMARY).exists():
        return False
    changes, prepared = [f"{SUMMARY} cannot be read"], read_prepared(directory)
    if prepared is not None:
        prepared.check_files(config.corpus.test)
        changes = changed_settings(prepared, config, digests)
    if prepared is None or changes:
        raise CorpusError(
            f"{directory} cannot be used for this experiment: {'; '.join(changes)}. Choose another data_dir, or "
            "delete this one"
        )
    prepared.load_tokenizer()  # raises an error if the tokenizer was replaced by another one
    if _added_corpora(prepared, digests):
        return False
    print(f"already prepared: {directory}")
    return True


def changed_settings(prepared: Prepared, config: Config, digests: dict[str, str]) -> list[str]:
    """Say in which settings and texts the prepared data differ from the configuration and the digests of its texts."""
    same, added = prepared.same_tokenizer(config.tokenizer), _added_corpora(prepared, digests)
    if added and isinstance(config.corpus.train, tuple):
        before = tuple(text for text in config.corpus.train if f"train/{text.name}" not in added)
        config = config.model_copy(update={"corpus": config.corpus.model_copy(update={"train": before})})
    sections = {
        "corpus": prepared.corpus.without_weights,
        "filters": prepared.filters_for(config.filters),
        "tokenizer": config.tokenizer if same else prepared.tokenizer,
    }
    now = config.model_copy(update={"corpus": config.corpus.without_weights})
    changes = [*differences(config.model_copy(update=sections), now).values()]
    texts = [name for name, digest in digests.items() if digest != prepared.digests.get(name, digest)]
    changes += [f"the text of {name} has changed" for name in texts]
    return changes + prepared.tokenizer_changes(config.tokenizer) if same else changes


def _added_corpora(prepared: Prepared, digests: dict[str, str]) -> list[str]:
    """The split names of the training corpora that are not in the prepared data yet."""
    return [name for name in digests if name.startswith("train/") and name not in prepared.digests]


def _tokenizer(
    config: Config, digests: dict[str, str], pairs: dict[str, Corpus], texts: TextFilters, existing: Tokenizer | None
) -> Tokenizer:
    """The existing one; or that in the data_dir if it was made with the same settings and text; else a new one."""
    directory = Path(config.data_dir)
    if existing is not None:
        existing.save(directory)
        (directory / ORIGIN).unlink(missing_ok=True)
        return existing
    training = {name: digest for name, digest in digests.items() if is_training(name)}
    settings = _tokenizer_settings(config)
    origin = TokenizerOrigin.load(directory)
    if origin and (tokenizer := origin.tokenizer_for(directory, settings, training)):
        print(f"using the tokenizer that is already in {directory}", flush=True)
        return tokenizer
    places = [fill_data_dir.splits_of(config.corpus)[name].place for name in training]
    print(f"training the tokenizer on {', '.join(places)}", flush=True)
    tokenizer = _train_tokenizer([pairs[name] for name in training], config, texts)
    tokenizer.save(directory)
    digest = tokenizer.digest
    TokenizerOrigin(settings=settings, trained_on=tuple(training), used_for=training, digest=digest).save(directory)
    return tokenizer


def _symbols(config: Config) -> list[str]:
    """The texts that the tokenizer never splits, each once: its own symbols, the tags of all corpora, and KEEP."""
    kept = KEEP if config.training.modifiers.protect else ()
    return list(dict.fromkeys([*config.tokenizer.user_symbols, *config.corpus.tags, *kept]))


def _tokenizer_settings(config: Config) -> str:
    """A hash of all settings on which a trained tokenizer depends."""
    filters, splits = [config.filters] if config.filters.look_at_text else [], fill_data_dir.splits_of(config.corpus)
    # The range of each held-out share, with the name of its corpus if it is a share of one corpus.
    shares = [(*range_, *filter(None, [splits[name].name])) for name, range_ in config.corpus.held_shares.items()]
    path, settings = config.tokenizer.extend_from, config.tokenizer.model_copy(update={"extend_from": None})
    old = [existing_tokenizer.open_existing(as_model_dir(Path(path))).digest] if path and Path(path).exists() else []
    return fingerprint(settings, *filters, *map(repr, shares), *_symbols(config), *old)


def _begin_to_add(prepared: Prepared, config: Config, digests: dict[str, str]) -> None:
    """Record that further corpora use the tokenizer of a prepared directory, and mark its data as unfinished."""
    directory, tokenizer = prepared.directory, prepared.load_tokenizer()
    added = _added_corpora(prepared, digests)
    for name in added:
        _check_tag(tokenizer, fill_data_dir.splits_of(config.corpus)[name])
    print(f"adding to {directory}: {', '.join(name.removeprefix('train/') for name in added)}", flush=True)
    origin = TokenizerOrigin.load(directory)
    if origin is not None and config.tokenizer.from_ is None:
        print(
            "note: the tokenizer was trained without the added text, and is not changed. To train one on all of the "
            "text, choose another data_dir",
            flush=True,
        )
        used_for = {name: digest for name, digest in digests.items() if is_training(name)}
        origin.model_copy(update={"settings": _tokenizer_settings(config), "used_for": used_for}).save(directory)
    (directory / SUMMARY).unlink()


def _check_tag(tokenizer: Tokenizer, text: PairedText) -> None:
    """Raises CorpusError if the tag of a corpus is not a piece of a tokenizer that was trained before."""
    if missing := [token for token in (text.tag or "").split() if tokenizer.source.piece_to_id(token) == UNK]:
        raise CorpusError(
            f"the tag {missing[0]} of the corpus {text.name} is no piece of the tokenizer, which was trained without "
            "this corpus; set another data_dir, so that `prepare` trains a tokenizer on all corpora"
        )


def _opened_tokenizer(path: str, key: str, settings: TokenizerConfig) -> Tokenizer:
    """Load and check the tokenizer at this path, the value of `key`. Prints a warning if it changes text."""
    tokenizer = existing_tokenizer.open_existing(as_model_dir(Path(path)), key)
    existing_tokenizer.check_fits(tokenizer, settings)
    warn(*existing_tokenizer.tokenizer_warnings(tokenizer))
    return tokenizer


def _existing_tokenizer(path: str, config: Config) -> Tokenizer:
    """Load the tokenizer that is used unchanged."""
    tokenizer = _opened_tokenizer(path, "tokenizer.from", config.tokenizer)
    existing_tokenizer.check_symbols(tokenizer, config.tokenizer, config.corpus.tags)
    check_kept(tokenizer, config.training.modifiers.protect)
    print(f"using the tokenizer {path}", flush=True)
    return tokenizer


def _train_tokenizer(corpora: Sequence[Corpus], config: Config, texts: TextFilters) -> Tokenizer:
    """Train a tokenizer on an even sample of all corpora, without pairs that the text filters remove."""
    settings, skip_bad = config.tokenizer, config.filters.on_bad_line == "skip"
    path = settings.extend_from  # opened first, because an error now is better than one after the training
    old = None if path is None else _opened_tokenizer(path, "tokenizer.extend_from", settings)
    languages = [config.corpus.languages_of(text) for text in config.corpus.training_corpora]

    def stays(corpus: int, pair: tuple[str, str]) -> bool:
        # filters.held_out is not used here: it is on by default, and so the sample usually needs no filtering.
        cleaned = clean(pair[0]), clean(pair[1])
        of = languages[corpus]
        return not (texts.is_of_held_share(*cleaned, of) or texts.reason_switched_on(*cleaned, of))

    # Training takes memory: 5 times the bytes of both languages with bpe, 21 times with unigram.
    most_bytes = 30_000_000 if settings.algorithm == "unigram" else 100_000_000
    samples = [(corpus.pairs(skip_bad), corpus.num_pairs) for corpus in corpora]
    filtering = (stays,) if config.filters.look_at_text or texts.held_share else ()
    sources, targets = sample_of(samples, settings.sample_sentences, most_bytes, *filtering)
    trained = Tokenizer.train(taken(sources), taken(targets), settings, _symbols(config))
    if old is None:
        return trained
    tokenizer = existing_tokenizer.extended(old, trained, settings, _symbols(config))
    existing_tokenizer.check_symbols(tokenizer, settings, config.corpus.tags)
    added = tokenizer.target_vocab_size - old.target_vocab_size
    print(f"the tokenizer {path} got {counted(added, 'new piece')}", flush=True)
    return tokenizer


if __name__ == "__main__":
    sys.exit(cli.run(main))
