"""Fine-tuning on question-answer pairs. It makes a new model; other methods ask it."""

from upkeep.cell import Course, Method, Training
from upkeep.cell.finetuning import Stage, finetune
from upkeep.cell.samples import Material


class Sft(Method):
    def train(self, training: Training) -> Course:
        return finetune(training, self.tools, Stage(Material.pairs, self.parameters))
