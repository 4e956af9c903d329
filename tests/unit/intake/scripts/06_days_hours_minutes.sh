#!/bin/bash
#SBATCH -J longrun2
#SBATCH --time 1-06:30
./longrun
