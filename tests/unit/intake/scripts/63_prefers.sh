#!/bin/bash
#SBATCH --prefer=nvlink
#SBATCH --priority=1000
#SBATCH --clusters=yardrig
#SBATCH --uid=0 --gid=0
#SBATCH --gpus=a100:2
./run
