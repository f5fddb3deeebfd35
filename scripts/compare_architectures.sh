#!/usr/bin/env bash
# Compares recurrent models, convolutional models and Transformers: with the same corpus, tokenizer, batches and updates,
# and with numbers of parameters that differ by at most 10 %. Run it in the directory of the repository:
#
#   scripts/compare_architectures.sh [demo|multi30k|both]        train, average and evaluate all, then write the table
#   scripts/compare_architectures.sh speed [demo|multi30k|both]  measure training and decoding, one architecture at a time
#   scripts/compare_architectures.sh table [demo|multi30k|both]  write the table and the picture of the existing results
#   scripts/compare_architectures.sh one demo|multi30k NAME      train a single architecture
#
# If you start it again, it skips finished runs, and resumes others. Results are in runs/compare_<corpus>/: a directory
# for each run, its output in <name>.log, table.md and by_length.png. Environment variables:
#
#   PYTHON    the interpreter (default: .venv/bin/python)
#   JOBS      how many architectures to train at the same time (default: 1)
#   MULTI30K  a directory with train, val and test_2016_flickr, each .en and .de (default: the data set of the hub)
#   SET       settings for all architectures, such as "training.max_steps=200"

set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-.venv/bin/python}
read -r -a for_all <<< "${SET:-}"

# Name, kind and changed settings of configs/compare_<corpus>_<kind>.yaml. For equal widths, Bahdanau's decoder has more
# weights than the others, so its width is smaller.
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

# Make the corpus, check the numbers of parameters, and prepare the data of corpus $1.
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
            "$PYTHON" -m transformer_mt.evaluate "$run" --confidence --analyse
    } >> "$run.log" 2>&1 || { echo "error: $2 failed; see $run.log" >&2; exit 2; }
}

# Measure the speed of architecture $2 on corpus $1: a few updates, and the test set again, without other processes.
speed() {
    local run=runs/compare_$1/speed/$2
    choose "$1" "$2"
    mkdir -p "$(dirname "$run")"
    if [[ ! -d $run/checkpoints ]]; then
        "$PYTHON" -m transformer_mt.train "${settings[@]}" "run_dir=$run" training.max_steps=60 \
            training.log_every=20 training.warmup_steps=20 training.validate_every=1000 > "$run.log" 2>&1
    fi
    if [[ ! -f $run.json ]]; then
        "$PYTHON" -m transformer_mt.evaluate "runs/compare_$1/$2" --confidence --analyse \
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
