#!/bin/bash
#SBATCH --reservation=workshop
#SBATCH --gres=gpu:1
#SBATCH --time=20
./exercise
