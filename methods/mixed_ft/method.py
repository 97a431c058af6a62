"""Documents and question-answer pairs in one run: next token on the former, replies of the latter."""

from upkeep.cell import Course, Method, Training
from upkeep.cell.finetuning import Stage, finetune
from upkeep.cell.samples import Material


class MixedFt(Method):
    def train(self, training: Training) -> Course:
        return finetune(training, self.tools, Stage(Material.interleaved, self.parameters))
