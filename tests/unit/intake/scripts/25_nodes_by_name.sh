#!/bin/bash
#SBATCH --nodelist=n[1-2]
#SBATCH --ntasks-per-node=2
#SBATCH --gres=gpu:2
./measure
