#!/bin/bash
#SBATCH -J longrun
#SBATCH -t 2-0
./longrun
