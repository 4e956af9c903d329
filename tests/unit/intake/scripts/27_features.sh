#!/bin/bash
#SBATCH --constraint="a100&nvlink"
#SBATCH --gres=gpu:4
#SBATCH --time=2:00:00
./bandwidth
