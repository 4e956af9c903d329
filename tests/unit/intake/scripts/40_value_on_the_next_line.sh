#!/bin/bash
#SBATCH --nodes
#SBATCH 2
#SBATCH --ntasks-per-node
#SBATCH 4
./run
