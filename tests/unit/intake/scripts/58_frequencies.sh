#!/bin/bash
#SBATCH --cpu-freq=high
#SBATCH --gpu-freq=medium
#SBATCH --power=level
#SBATCH --gres=gpu:1
#SBATCH --threads-per-core=1
#SBATCH --ntasks-per-core=1
./measure
