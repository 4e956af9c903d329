#!/bin/bash -l
#SBATCH --account=research
#SBATCH --qos=high
#SBATCH --partition=gpu,main
#SBATCH --gres=gpu:1
#SBATCH --time=4:00:00
./run
