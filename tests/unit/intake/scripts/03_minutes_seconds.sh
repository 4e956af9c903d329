#!/bin/bash
#SBATCH -J quick
#SBATCH -t 90:30
./quick
