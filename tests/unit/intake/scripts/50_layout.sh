#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks=8
#SBATCH --distribution=block:cyclic
#SBATCH --ntasks-per-socket=2
#SBATCH --hint=nomultithread
#SBATCH --contiguous
#SBATCH --switches=1@5
#SBATCH --mem-bind=local
#SBATCH --gpu-bind=closest
#SBATCH --gres-flags=disable-binding
#SBATCH --gres=gpu:4
#SBATCH --mincpus=4
#SBATCH --tmp=10G
srun ./solver
