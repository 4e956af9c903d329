#!/bin/bash
hostname
nvidia-smi -L
