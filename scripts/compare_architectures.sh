#!/usr/bin/env bash
# Recurrent and convolutional models and Transformers side by side: the same corpus, tokenizer, batches, updates and, within 10 %,
# parameters. From the directory of the repository:
#
#   scripts/compare_architectures.sh [demo|multi30k|both]    train, average and evaluate all, then the table
#   scripts/compare_architectures.sh speed [demo|multi30k|both]    how fast each trains and decodes, alone, one by one
#   scripts/compare_architectures.sh table [demo|multi30k|both]    the table and the picture of what is there
#   scripts/compare_architectures.sh one demo|multi30k NAME     a single architecture
#
# What is done is not done again; what was begun goes on. Results lie in runs/compare_<corpus>/: a run a folder,
# its output in <name>.log, table.md and by_length.png. In the environment:
#
#   PYTHON    the interpreter (.venv/bin/python)
#   JOBS      architectures that are trained at a time (1)
#   MULTI30K  a folder with train, val and test_2016_flickr, each .en and .de; else the hub's data set is taken
#   SET       settings for all, as "training.max_steps=200"

set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-.venv/bin/python}
read -r -a for_all <<< "${SET:-}"

# Name, kind and what differs from configs/compare_<corpus>_<kind>.yaml. Bahdanau's decoder has more weights at a width.
architectures() {
    cat << 'END'
rnn-none                rnn          model.attention=none
rnn-dot                 rnn          model.attention=dot
rnn-general             rnn          model.attention=general
rnn-additive            rnn          model.attention=additive
rnn-bahdanau            rnn          model.attention=additive model.decoder=bahdanau model.d_model=176
rnn-concat              rnn          model.attention=concat
rnn-fixed_concat        rnn          model.attention=fixed_concat
convolutional           convolutional  model.kernel_width=3
transformer-sinusoidal  transformer  model.positions=sinusoidal
transformer-learned     transformer  model.positions=learned
END
}

names() { architectures | awk '{print $1}'; }

# The configuration and the settings of architecture $2 on corpus $1, as the array `settings`.
choose() {
    local name kind rest
    read -r name kind rest < <(architectures | awk -v name="$2" '$1 == name') || true
    [[ ${kind:-} ]] || { echo "error: $2 is none of: $(names | xargs)" >&2; exit 2; }
    read -r -a settings <<< "$rest"
    settings=("configs/compare_$1_$kind.yaml" "run_dir=runs/compare_$1/$name" "${settings[@]}")
    if [[ $1 == multi30k && ${MULTI30K:-} ]]; then
        settings+=("corpus.train=$MULTI30K/train" "corpus.valid=$MULTI30K/val"
            "corpus.test={test_2016_flickr: $MULTI30K/test_2016_flickr}")
    fi
    settings+=(${for_all[@]+"${for_all[@]}"})
}

# How many words wider each bucket of lengths is.
width() { if [[ $1 == demo ]]; then echo 10; else echo 5; fi; }

prepare() {
    if [[ $1 == demo ]]; then
        "$PYTHON" scripts/make_demo_corpus.py --output data/demo_corpus_long --join 4 --train 30000 --test 1000
    fi
    mkdir -p "runs/compare_$1"
    for name in $(names); do
        choose "$1" "$name"
        printf '%s ' "$name"
        "$PYTHON" scripts/count_parameters.py "${settings[@]}"
    done | tee "runs/compare_$1/parameters.txt"
    awk '{if (NR == 1 || $2 < least) least = $2; if ($2 > most) most = $2}
        END {if (most > 1.1 * least) {print "error: more than 10 % apart" > "/dev/stderr"; exit 2}}' \
        "runs/compare_$1/parameters.txt"
    choose "$1" "$(names | tail -1)"
    "$PYTHON" -m transformer_mt.prepare "${settings[@]}"
}

# Train, average and evaluate architecture $2 on corpus $1.
one() {
    local run=runs/compare_$1/$2
    choose "$1" "$2"
    if [[ -f $run/evaluation/scores.json ]]; then
        echo "$run is done"
        return
    fi
    echo "$run: see $run.log"
    {
        "$PYTHON" -m transformer_mt.train "${settings[@]}" &&
            "$PYTHON" -m transformer_mt.average "$run" &&
            "$PYTHON" -m transformer_mt.evaluate "$run" --confidence --by-length "$(width "$1")"
    } >> "$run.log" 2>&1 || { echo "error: $2 failed; see $run.log" >&2; exit 2; }
}

# A few updates, and the test set once more, with nothing beside them.
speed() {
    local run=runs/compare_$1/speed/$2
    choose "$1" "$2"
    mkdir -p "$(dirname "$run")"
    if [[ ! -d $run/checkpoints ]]; then
        "$PYTHON" -m transformer_mt.train "${settings[@]}" "run_dir=$run" training.max_steps=60 \
            training.log_every=20 training.warmup_steps=20 training.validate_every=1000 > "$run.log" 2>&1
    fi
    if [[ ! -f $run.json ]]; then
        "$PYTHON" -m transformer_mt.evaluate "runs/compare_$1/$2" --confidence --by-length "$(width "$1")" \
            --json "$run.json" >> "$run.log" 2>&1
    fi
    tail -1 "$run/log.jsonl"
}

table() {
    "$PYTHON" scripts/compare_table.py "runs/compare_$1" $(names) | tee "runs/compare_$1/table.md"
}

each_corpus() {
    case ${1:-both} in
        demo | multi30k) echo "${1}" ;;
        both) echo demo multi30k ;;
        *) echo "error: $1: name demo, multi30k or both" >&2; exit 2 ;;
    esac
}

case ${1:-both} in
    one)
        one "$2" "$3"
        ;;
    speed | table)
        corpora=$(each_corpus "${2:-both}")
        for corpus in $corpora; do
            if [[ $1 == speed ]]; then
                for name in $(names); do speed "$corpus" "$name"; done
            fi
            table "$corpus"
        done
        ;;
    *)
        corpora=$(each_corpus "$@")
        for corpus in $corpora; do
            prepare "$corpus"
            names | xargs -P "${JOBS:-1}" -I NAME "$BASH" scripts/compare_architectures.sh one "$corpus" NAME
            table "$corpus"
        done
        ;;
esac
