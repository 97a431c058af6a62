"""What a SLURM cluster on one machine is configured with, see `cluster.py`."""

SLURM_CONF = """
ClusterName=upkeep
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldDebug=verbose
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
SlurmdParameters=config_overrides
# Machines and their pretend GPUs; memory is counted, not enforced.
GresTypes=gpu
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
NodeName={nodes} NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs={cpus} RealMemory=100000 {features}
# What is running in `low` is put back into the queue when `high` needs its place.
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
PartitionName=low Nodes=ALL Default=YES PriorityTier=1 MaxTime=INFINITE
PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE
# Everything soon: a test waits for nothing.
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1
SchedulerTimeSlice=5
SlurmdTimeout=8
SlurmctldTimeout=5
MessageTimeout=20
TCPTimeout=2
KillWait=3
MinJobAge=300
InactiveLimit=0
Waittime=0
ReturnToService=2
"""

WITH_ACCOUNTING = """
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={database_daemon}
AccountingStoragePass={folder}/munge/socket
AccountingStorageEnforce=associations
AccountingStorageTRES=gres/gpu
"""

SLURMDBD_CONF = """
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={database_daemon}
SlurmUser=root
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm
"""
