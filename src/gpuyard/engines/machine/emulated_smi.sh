#!/bin/sh
# `nvidia-smi` of a job on emulated GPUs: it shows the job's own cards, and says of each that it is emulated.
#
# What a card is comes from YARD_EMULATED_GPUS, what it does from the script in YARD_EMULATED_LOAD, as the yard's own
# telemetry has it; without a script nobody knows, and it says so.
#
# A job runs it, in an image too, which may have no more than a plain shell: POSIX sh, and `date` where there is one.
export LC_ALL=C
set -f
mark='emulated by gpuyard'
unknown='[N/A]'
idle_w=70 full_w=700 idle_c=34 full_c=74
white=" $(printf '\t')
"
IFS=$white

say() { printf '%s\n' "$*"; }

refuse() { # MESSAGE
    say "nvidia-smi ($mark): $1"
    exit 2
}

digits() { # TEXT: whether it is a number, short enough to count with
    case $1 in '' | *[!0-9]*) return 1 ;; esac
    [ ${#1} -le 9 ]
}

plain() { # NUMBER: the same without the zeros that would make it octal, in $got
    got=$1
    while :; do case $got in 0?*) got=${got#0} ;; *) return ;; esac; done
}

trimmed() { # TEXT: without white space around it, in $got
    got=${1#"${1%%[!$white]*}"}
    got=${got%"${got##*[!$white]}"}
}

# ---- what the cards do

step() { # TEXT: one step of a script, in $step_busy, $step_mib and $step_s, which may be empty
    IFS=$white
    set -- $1
    case ${1-} in *%) step_busy=${1%?} ;; *) return 1 ;; esac
    digits "$step_busy" && [ ${#step_busy} -le 3 ] || return 1
    plain "$step_busy"
    step_busy=$got
    [ "$step_busy" -le 100 ] && [ $# -gt 1 ] || return 1
    shift
    size=$1
    shift
    case ${1-} in M | G | MiB | GiB)
        size=$size$1
        shift
        ;;
    esac
    case $size in
        *MiB) factor=1 size=${size%MiB} ;;
        *M) factor=1 size=${size%M} ;;
        *GiB) factor=1024 size=${size%GiB} ;;
        *G) factor=1024 size=${size%G} ;;
        *) return 1 ;;
    esac
    tenths=0 ten=1
    case $size in *.*)
        tenths=${size#*.} size=${size%%.*}
        digits "$tenths" || return 1
        left=$tenths
        while [ -n "$left" ]; do left=${left#?} ten=$((ten * 10)); done
        plain "$tenths"
        tenths=$got
        ;;
    esac
    digits "$size" || return 1
    plain "$size"
    step_mib=$((got * factor + (tenths * factor * 2 + ten) / (ten * 2)))
    step_s=
    case $# in
        0) return 0 ;;
        1) step_s=${1%s} && [ "$step_s" != "$1" ] || return 1 ;;
        2) step_s=$1 && [ "$2" = s ] || return 1 ;;
        *) return 1 ;;
    esac
    digits "$step_s" || return 1
    plain "$step_s"
    step_s=$got
}

read_load() { # how busy all cards are, in percent, and the MiB held, in $busy and $held; empty: nobody knows
    busy= held=
    now=$(date +%s 2>/dev/null)
    case ${SLURM_JOB_START_TIME-} in '' | *[!0-9]*) return ;; esac
    case $now in '' | *[!0-9]*) return ;; esac
    since=$((now - SLURM_JOB_START_TIME)) until=0 found_busy= found_mib=
    rest=${YARD_EMULATED_LOAD-}
    while :; do
        part=${rest%%,*}
        step "$part" || return
        case $rest in *,*) last= ;; *) last=1 ;; esac
        [ -n "$step_s$last" ] || return
        until=$((until + ${step_s:-0}))
        if [ -z "$found_busy" ] && { [ -n "$last" ] || [ "$since" -lt "$until" ]; }; then
            found_busy=$step_busy found_mib=$step_mib
        fi
        [ -z "$last" ] || break
        rest=${rest#*,}
    done
    busy=$found_busy held=$found_mib
}

# ---- the cards

read_cards() { # those that the job sees, as UUID=MODEL=MIB with commas between, in $cards
    named= numbered= all=${YARD_EMULATED_GPUS-}
    IFS=,
    for name in ${CUDA_VISIBLE_DEVICES-}; do
        at=0
        for card in $all; do
            [ "$name" != "$at" ] || numbered=$numbered,$card
            at=$((at + 1))
        done
    done
    for card in $all; do
        case ,${CUDA_VISIBLE_DEVICES-}, in *,"${card%%=*}",*) named=$named,$card ;; esac
    done
    # Slices have names of their own, and lie on all cards that the job has.
    cards=${named:-$numbered}
    cards=${cards:-$all}
    cards=${cards#,}
}

each_card() { # COMMAND: run it for each card that is meant, with what is known of the card in variables
    number=0
    IFS=,
    for card in $cards; do
        uuid=${card%%=*} mib=${card##*=}
        model=${card#*=}
        model="NVIDIA ${model%=*} (emulated)"
        bus=$(printf '00000000:%02X:00.0' $((number + 1)))
        used=$held
        [ -z "$used" ] || [ "$used" -le "$mib" ] || used=$mib
        heat=${busy:+$((idle_c + (full_c - idle_c) * ${busy:-0} / 100))}
        power=${busy:+$((idle_w + (full_w - idle_w) * ${busy:-0} / 100))}
        case ,${only:-$number}, in *,"$number",* | *,"$uuid",*) "$1" ;; esac
        number=$((number + 1))
    done
}

field() { # NAME: its value of the card in $got and its unit in $unit; fails where there is no such field
    unit=
    case $1 in
        index) got=$number ;;
        count) got=1 ;;
        name | gpu_name) got=$model ;;
        uuid | gpu_uuid) got=$uuid ;;
        pci.bus_id | gpu_bus_id) got=$bus ;;
        driver_version) got=emulated ;;
        timestamp) got=$(date '+%Y/%m/%d %H:%M:%S.000' 2>/dev/null) ;;
        pstate) got=P0 ;;
        persistence_mode) got=Enabled ;;
        compute_mode) got=Default ;;
        serial | fan.speed | mig.mode.current) got= ;;
        memory.total) got=$mib unit=MiB ;;
        memory.used) got=$used unit=MiB ;;
        memory.free) got=${used:+$((mib - ${used:-0}))} unit=MiB ;;
        utilization.gpu) got=$busy unit=% ;;
        utilization.memory) got= unit=% ;;
        temperature.gpu) got=$heat ;;
        power.draw) got=${power:+$power.00} unit=W ;;
        power.limit) got=$full_w.00 unit=W ;;
        *) return 1 ;;
    esac
}

app_field() { # NAME: the same for programs on a card, of which none is known
    unit=
    case $1 in
        used_memory | used_gpu_memory) unit=MiB ;;
        pid | process_name | name | gpu_uuid | gpu_name | gpu_bus_id | gpu_serial | timestamp) ;;
        *) return 1 ;;
    esac
}

# ---- the answers

help() {
    say "nvidia-smi, $mark: the cards of this job.
  nvidia-smi                         a table
  nvidia-smi -L                      a line for each card
  nvidia-smi -q                      what is known of each card
  nvidia-smi --query-gpu=FIELDS --format=csv[,noheader][,nounits]
  nvidia-smi --query-compute-apps=FIELDS --format=csv[,noheader][,nounits]
  -i ID[,ID]                         of these cards alone, by index or UUID"
}

version() {
    say "NVIDIA-SMI version  : $mark"
    say 'DRIVER version      : none'
    say 'CUDA Version        : none'
}

listed() { say "GPU $number: $model (UUID: $uuid)"; }

known() {
    say "GPU $bus ($mark)"
    IFS=$white
    for name in gpu_name uuid serial pci.bus_id driver_version pstate fan.speed persistence_mode compute_mode \
        mig.mode.current memory.total memory.used memory.free utilization.gpu utilization.memory temperature.gpu \
        power.draw power.limit; do
        field "$name"
        printf '    %-38s : %s\n' "$name" "${got:-$unknown}${got:+${unit:+ $unit}}"
    done
}

queried() {
    line=
    IFS=,
    for name in $fields; do
        field "$name"
        if [ -n "$bare" ]; then unit=; fi
        line="$line, ${got:-$unknown}${got:+${unit:+ $unit}}"
    done
    say "${line#, }"
}

header() { # COMMAND that knows the fields
    line=
    IFS=,
    for name in $fields; do
        "$1" "$name"
        line="$line, $name${unit:+ [$unit]}"
    done
    case ,$formats, in *,noheader,*) ;; *) say "${line#, }" ;; esac
}

rule() { say '+-----------------------------------------------------------------------------+'; }
row() { printf '| %-75s |\n' "$1"; }
cells() { printf '%3s  %-30.30s %5s %6s %19s %6s' "$@"; }
in_table() {
    row "$(cells "$number" "$model" "${heat:-N/A}${heat:+C}" "${power:-N/A}${power:+W}" \
        "${used:-?} / $mib MiB" "${busy:-N/A}${busy:+%}")"
}

table() {
    date '+%a %b %e %H:%M:%S %Y' 2>/dev/null
    rule
    row "NVIDIA-SMI ($mark)"
    rule
    row "$(cells GPU Name Temp Power Memory Util)"
    each_card in_table
    rule
    row 'Processes on emulated GPUs are not known.'
    rule
}

# ---- the command line

what=table fields= formats= only=
while [ $# -gt 0 ]; do
    name=${1%%=*} value=
    case $name in
        -i | --id | --format | --query-gpu | --query-compute-apps)
            case $1 in
                *=*) value=${1#*=} ;;
                *)
                    [ $# -gt 1 ] || refuse "$name needs a value"
                    shift
                    value=$1
                    ;;
            esac
            text=
            IFS=,
            for part in $value; do
                trimmed "$part"
                text=$text,$got
            done
            value=${text#,}
            ;;
    esac
    case $name in
        -L | --list-gpus) what=list ;;
        -q | --query) what=all ;;
        -h | --help) what=help ;;
        --version) what=version ;;
        -i | --id) only=$value ;;
        --format) formats=$value ;;
        --query-gpu | --query-compute-apps) what=$name fields=$value ;;
        *) refuse "$name is not known here. \`nvidia-smi --help\` says what is." ;;
    esac
    shift
done

read_load
read_cards
number= model= uuid= bus= mib=0 used= heat= power=
if [ -n "$fields" ]; then
    case ,$formats, in *,csv,*) ;; *) refuse "$what needs --format=csv" ;; esac
    case $what in --query-gpu) reader=field ;; *) reader=app_field ;; esac
    IFS=,
    for name in $fields; do
        "$reader" "$name" || refuse "Field \"$name\" is not a valid field to query."
    done
fi
bare=
case ,$formats, in *,nounits,*) bare=1 ;; esac
case $what in
    help | version)
        "$what"
        exit 0
        ;;
esac
count=0 ids=,
IFS=,
for card in $cards; do
    ids=$ids$count,${card%%=*},
    count=$((count + 1))
done
for name in $only; do
    case $ids in *,"$name",*) ;; *) refuse "No device was found with the ID $name; this job has $count." ;; esac
done
if [ "$count" = 0 ]; then
    say "No devices were found ($mark)"
    exit 6
fi
case $what in
    table) table ;;
    list) each_card listed ;;
    all) each_card known ;;
    --query-gpu)
        header field
        each_card queried
        ;;
    --query-compute-apps) header app_field ;;
esac
exit 0
