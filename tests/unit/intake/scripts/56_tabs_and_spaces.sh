#!/bin/bash
#SBATCH	--nodes=2	--ntasks=6
#SBATCH   --cpus-per-task    3
#SBATCH --mem-per-cpu=1024K
   
	
./run
