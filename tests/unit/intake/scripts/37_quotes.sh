#!/bin/bash
#SBATCH --job-name="two words" --comment='it is "quoted"'
#SBATCH --constraint='a100|v100'
#SBATCH --gres="gpu:1"
#SBATCH --time=1\0
./run
