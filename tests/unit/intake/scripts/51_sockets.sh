#!/bin/bash
#SBATCH --sockets-per-node=2
#SBATCH --gpus-per-socket=2
#SBATCH --cores-per-socket=4
#SBATCH --time=15
./numa
