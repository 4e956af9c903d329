#!/bin/bash
#SBATCH --export=HOME,DATASET=/data/imagenet,SEED=7
#SBATCH --gres=gpu:1
./run
