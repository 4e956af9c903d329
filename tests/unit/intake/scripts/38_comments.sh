#!/bin/bash
# A note before the directives.

#SBATCH --nodes=2          # two nodes
##SBATCH --nodes=4
#SBATCH --gres=gpu:4 # half of each
#SBATCH --time=1:00:00#an hour
# SBATCH --mem=64G
./run
