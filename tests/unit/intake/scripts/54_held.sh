#!/bin/bash
#SBATCH -H
#SBATCH -J waits
#SBATCH --parsable --quiet
./run
