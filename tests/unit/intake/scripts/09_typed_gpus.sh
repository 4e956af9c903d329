#!/bin/bash
#SBATCH -p gpu
#SBATCH --gres=gpu:a100:2
#SBATCH -c 16
#SBATCH --mem=96000
#SBATCH -t 1-0
#SBATCH -o train.%j.out
#SBATCH -e train.%j.err
export NCCL_DEBUG=WARN
torchrun --nproc_per_node=2 train.py
