#!/usr/bin/env bash
# A real Slurm of three virtual nodes on this machine, for tests. Another Slurm is not affected.
#
#   ./scripts/virtual_slurm.sh start DIR          controller and three nodes; returns when they are idle
#   ./scripts/virtual_slurm.sh stop DIR           ends them and their jobs
#   ./scripts/virtual_slurm.sh start DIR NAME     one daemon: controller, n1, n2 or n3
#   ./scripts/virtual_slurm.sh stop DIR NAME      kills a daemon; a node's jobs and their steps as well
#   export SLURM_CONF=DIR/slurm.conf              makes sbatch, squeue and scontrol talk to this cluster
#
# Needs slurmctld, slurmd, slurm-client and slurm-wlm-basic-plugins. Nodes share the machine's CPUs:
# timings mean nothing here.
set -euo pipefail

action="${1:?start or stop}"
mkdir -p "${2:?a folder}"
folder="$(cd "$2" && pwd)"
only="${3:-}"
nodes=(n1 n2 n3)
export SLURM_CONF="${folder}/slurm.conf"

configure() {
  local user host ports
  user="$(id -un)" host="$(hostname -s)"
  mapfile -t ports < <(python3 -c '
import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(4)]
print(*(item.getsockname()[1] for item in sockets), sep="\n")')
  mkdir -p "${folder}/state" "${folder}/log"
  cat >"${SLURM_CONF}" <<END
ClusterName=virtual
SlurmctldHost=${host}(127.0.0.1)
SlurmctldPort=${ports[0]}
SlurmUser=${user}
SlurmdUser=${user}
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=15
MessageTimeout=5
KillWait=5
MinJobAge=${VIRTUAL_SLURM_MIN_JOB_AGE:-60}
SchedulerParameters=batch_sched_delay=1,sched_interval=2,bf_interval=2
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc=${folder}/log/jobs.txt
StateSaveLocation=${folder}/state
SlurmdSpoolDir=${folder}/state/%n
SlurmctldPidFile=${folder}/state/controller.pid
SlurmdPidFile=${folder}/state/%n.pid
SlurmctldLogFile=${folder}/log/controller.log
SlurmdLogFile=${folder}/log/%n.log
NodeName=n1 NodeHostname=${host} NodeAddr=127.0.0.1 Port=${ports[1]} CPUs=2 Feature=small
NodeName=n2 NodeHostname=${host} NodeAddr=127.0.0.1 Port=${ports[2]} CPUs=2 Feature=small
NodeName=n3 NodeHostname=${host} NodeAddr=127.0.0.1 Port=${ports[3]} CPUs=2 Feature=large
PartitionName=whole Nodes=n1,n2,n3 Default=YES OverSubscribe=EXCLUSIVE MaxTime=60
PartitionName=shared Nodes=n1,n2,n3 OverSubscribe=NO MaxTime=60
END
}

# Processes of a daemon: by a variable that only it has, and by those that Slurm gives to jobs and to
# the daemon of each job, which is the parent of the job.
processes_of() {
  local conf="SLURM_CONF=${SLURM_CONF}" process job
  for process in $(grep -lszxF -e "VIRTUAL_SLURM=${folder}:${1}" -e "${conf}" /proc/[0-9]*/environ); do
    process="${process%/environ}"
    if grep -qszxF "VIRTUAL_SLURM=${folder}:${1}" "${process}/environ"; then
      echo "${process#/proc/}"
    elif grep -qszxF "SLURMD_NODENAME=${1}" "${process}/environ"; then
      echo "${process#/proc/}"
      job="$(awk '/^PPid:/ { print $2 }' "${process}/status" 2>/dev/null || true)"
      [[ "$(cat "/proc/${job}/comm" 2>/dev/null)" != slurmstepd ]] || echo "${job}"
    elif [[ -z "${1}" && "$(cat "${process}/comm" 2>/dev/null)" == slurmstepd ]]; then
      echo "${process#/proc/}"
    fi
  done
}

start() {
  local program=(slurmd -D -N "$1")
  [[ "$1" == controller ]] && program=(slurmctld -D -i)
  [[ -z "$(processes_of "$1")" ]] || return 0
  VIRTUAL_SLURM="${folder}:${1}" PATH="${PATH}:/usr/sbin" setsid nice -n 19 "${program[@]}" \
    </dev/null >>"${folder}/log/${1}.out" 2>&1 &
}

# A controller stores its jobs first; nodes are killed without notice.
kill_all() {
  local found signal=KILL
  [[ "$1" == controller ]] && signal=TERM
  for tries in {1..100}; do
    mapfile -t found < <(processes_of "$1")
    ((${#found[@]})) || return 0
    # All at once, so that a daemon does not report the end of its job.
    [[ "${signal}" == TERM ]] || kill -STOP "${found[@]}" 2>/dev/null || true
    ((tries < 50)) || signal=KILL
    kill "-${signal}" "${found[@]}" 2>/dev/null || true
    sleep 0.1
  done
  echo "virtual_slurm.sh: ${1} does not end: ${found[*]}" >&2
  return 1
}

wait_for_nodes() {
  for _ in {1..300}; do
    [[ "$(sinfo --noheader --Node --partition=whole --format=%t 2>/dev/null)" == $'idle\nidle\nidle' ]] && return 0
    sleep 0.2
  done
  echo "virtual_slurm.sh: the nodes are not idle after a minute; logs: ${folder}/log" >&2
  return 1
}

case "${action}" in
  start)
    [[ -e "${SLURM_CONF}" ]] || configure
    for name in ${only:-controller "${nodes[@]}"}; do start "${name}"; done
    [[ -n "${only}" ]] || wait_for_nodes
    ;;
  stop)
    for name in ${only:-controller "${nodes[@]}"}; do kill_all "${name}"; done
    # Daemons of jobs that are ending have no job any more.
    [[ -n "${only}" ]] || kill_all ""
    ;;
  *)
    echo "virtual_slurm.sh: ${action} is not start or stop" >&2
    exit 2
    ;;
esac
