#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Runs the programs for RDMA of this system on the libraries, each with its peer on the same host, and prints a line for each.
# Needs the package viordma-verbs; what is not installed is skipped. The exit status is the number of failures.

run=${RUN_WITH:-viordma-verbs}
log=$(mktemp -d)
failures=0

# pair SERVER CLIENT [TRIES]: two commands, and how often they may be tried.
pair() {
    program=${1%% *}
    if ! command -v "$program" >/dev/null; then
        echo "skip $2: not installed"
        return
    fi
    $run $1 >"$log/server" 2>&1 &
    server=$!
    sleep 1
    timeout 60 $run $2 >"$log/client" 2>&1
    client=$?
    # Servers for any number of clients do not end by themselves.
    sleep 0.3
    kill "$server" 2>/dev/null && ended=1 || ended=0
    wait "$server" 2>/dev/null
    status=$?
    [ "$ended" = 1 ] && status=0
    if [ "$client" = 0 ] && [ "$status" = 0 ]; then
        echo "ok   $2"
    elif [ "${3:-1}" -gt 1 ]; then
        echo "again: $2: $(tail -n 1 "$log/server")"
        pair "$1" "$2" $(($3 - 1))
    else
        echo "FAIL $2: status $client, of the server $status"
        tail -n 5 "$log/server" "$log/client"
        failures=$((failures + 1))
    fi
}

for service in rc uc ud srq; do
    pair "ibv_${service}_pingpong -g 0" "ibv_${service}_pingpong -g 0 localhost"
done
pair "ibv_rc_pingpong -g 0 -e" "ibv_rc_pingpong -g 0 -e localhost"
pair "ibv_rc_pingpong -g 0 -N" "ibv_rc_pingpong -g 0 -N localhost"
for kind in write_bw read_bw send_bw atomic_bw write_lat read_lat send_lat atomic_lat; do
    pair "ib_$kind -F -n 500" "ib_$kind -F -n 500 localhost"
done
pair "ib_write_bw -F -R -n 500" "ib_write_bw -F -R -n 500 localhost"
pair "ib_write_bw -F -q 8 -n 500" "ib_write_bw -F -q 8 -n 500 localhost"
pair "ib_send_bw -F -e -n 500" "ib_send_bw -F -e -n 500 localhost"
pair "ib_send_lat -F -c UD -n 500" "ib_send_lat -F -c UD -n 500 localhost"
pair "ib_send_lat -F -c UC -n 500" "ib_send_lat -F -c UC -n 500 localhost"
# At its end, a thread of rping may destroy the event channel that another one of it reads.
pair "rping -s -a 127.0.0.1 -C 10" "rping -c -C 10 -a 127.0.0.1" 3
pair "ucmatose" "ucmatose -s 127.0.0.1"
pair "udaddy" "udaddy -s 127.0.0.1"
pair "rdma_server" "rdma_client -s 127.0.0.1"
pair "qperf" "qperf localhost -cm1 -t 1 rc_lat rc_bw quit"
pair "fi_pingpong -p verbs -I 500" "fi_pingpong -p verbs -I 500 127.0.0.1"
if [ -e /dev/infiniband/uverbs0 ]; then
    export UCX_TLS=rc_verbs,ud_verbs,self UCX_NET_DEVICES=viordma0:1
    # Built with MPI, it expects to be started by mpirun.
    alone=$(ucx_perftest -h 2>&1 | grep -q -e '-P <0|1>' && echo " -P 0")
    pair "ucx_perftest$alone" "ucx_perftest$alone localhost -t tag_lat -n 500"
    pair "ucx_perftest$alone" "ucx_perftest$alone localhost -t tag_bw -s 65536 -n 500"
else
    echo "skip ucx_perftest: there is no /dev/infiniband/uverbs0"
fi
rm -r "$log"
exit "$failures"
