#!/bin/bash
#SBATCH -B 2:4:1
#SBATCH --core-spec=2
./threads
