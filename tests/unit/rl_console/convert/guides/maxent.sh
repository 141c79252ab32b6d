#SBATCH --job-name=OpenR1_GRPO
#SBATCH --account=mltheory
#SBATCH --partition=mltheory
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --gres=gpu:a100:7
#SBATCH --cpus-per-task=64
#SBATCH --mem=256G
#SBATCH --time=72:00:00
#SBATCH --output=logs/slurm_%j.out
#SBATCH --exclusive
trl vllm-serve \
  --model Qwen/Qwen2.5-1.5B-Instruct \
  --dtype float16 \
  --port 8000 \
  --tensor-parallel-size 1 \
  --max-model-len 2048 \
  --gpu-memory-utilization 0.90
accelerate launch \
  --main_process_port 29525 \
  --config_file "$CONFIG_FILE" \
  src/grpo.py \
  --config "$CONFIG" \
  --use_vllm \
  --run_name "${RUN_NAME}-${TIMESTAMP}" \
  --ignore_data_skip \
  --overwrite_output_dir false \
  --seed 42
