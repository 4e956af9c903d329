#!/bin/bash
#SBATCH --job-name=ckpt
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --gres=gpu:2
#SBATCH --time=4:00:00
trap 'scontrol requeue "$SLURM_JOB_ID"' USR1
python train.py --resume &
wait
